# Grete with its examples, for docker-compose.yml: one worker a container.
FROM python:3.11-slim
WORKDIR /grete
COPY . .
RUN pip install --no-cache-dir -c constraints.txt -e . && mkdir .grete && chown nobody .grete
USER nobody
ENTRYPOINT ["grete"]
