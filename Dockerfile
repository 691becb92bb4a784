# The command `streamcal`, compiled, with Kafka, object stores, Parquet, pictures and HTTP.
FROM python:3.13-slim AS build
# hadolint ignore=DL3008  # whichever compiler the base image's Debian has
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY requirements requirements
# What builds and what runs: apart.
RUN python -m venv /opt/build \
    && /opt/build/bin/python -m pip install --no-cache-dir --require-hashes -r requirements/build.txt \
    && python -m venv /opt/streamcal \
    && /opt/streamcal/bin/python -m pip install --no-cache-dir --require-hashes -r requirements/image.txt
COPY LICENSE README.md pyproject.toml ./
COPY .ci .ci
COPY connectors connectors
COPY streamcal streamcal
RUN STREAMCAL_COMPILE=1 /opt/build/bin/python -m hatchling build -t wheel -d /wheels \
    && /opt/streamcal/bin/python -m pip install --no-cache-dir --no-index --no-deps /wheels/*.whl

FROM python:3.13-slim
COPY --from=build /opt/streamcal /opt/streamcal
ENV PATH=/opt/streamcal/bin:$PATH
RUN install --directory --owner=65532 --group=65532 /data
WORKDIR /data
USER 65532:65532
ENTRYPOINT ["streamcal"]
CMD ["--help"]
