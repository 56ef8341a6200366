# Grete with its examples, for docker-compose.yml: one worker a container.
# BASE=python@sha256:… takes the one image that you have looked at; a tag may name another tomorrow.
ARG BASE=python:3.11-slim
FROM ${BASE}
WORKDIR /grete
COPY . .
RUN pip install --no-cache-dir --require-hashes -r requirements/grete.txt \
    && pip install --no-cache-dir --no-deps --no-build-isolation -e . && mkdir .grete && chown nobody .grete
USER nobody
ENTRYPOINT ["grete"]
