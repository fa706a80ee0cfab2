# docker build -t oomlint . && docker run --rm -v "$PWD:/work:ro" oomlint configs
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /src/
COPY lint /src/lint
COPY rules /src/rules
COPY schemas /src/schemas
RUN pip install --no-cache-dir /src && rm -r /src && useradd --create-home oomlint
USER oomlint
WORKDIR /work
ENTRYPOINT ["oomlint"]
CMD ["check", "."]
