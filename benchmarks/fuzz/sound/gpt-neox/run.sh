python ./deepy.py train.py model.yml
