"""What the page asks of oomlint, as JSON in and out; runs in the browser's Python."""

import json

import oomlint
from oomlint.errors import UsageError
from oomlint.hardware import list_gpus
from oomlint.models import all_ids

NOTHING_FITS = (
    "No config is written: this fits that hardware in no way that is known. What comes nearest:"
)


def catalogue():
    """What the inputs suggest."""
    return json.dumps({"gpus": [gpu.name for gpu in list_gpus()], "models": sorted(all_ids())})


def answer(question):
    """What is asked for, or what is wrong with the question."""
    asked = json.loads(question)
    machine = {"hardware": asked["hardware"] or None, "host_memory": asked["memory"] or None}
    try:
        if asked["what"] == "check":
            found = oomlint.check(asked["files"], **machine)
        elif asked["what"] == "model":
            found = oomlint.estimate_model(**asked["wish"], **machine)
        else:
            found = oomlint.new_config(**asked["wish"], **machine)
            if found is None:
                nearest = oomlint.estimate_model(**asked["wish"], **machine)
                return json.dumps({"found": nearest, "note": NOTHING_FITS})
    except UsageError as error:
        return json.dumps({"trouble": str(error)})
    return json.dumps({"found": found})
