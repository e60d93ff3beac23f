# The image of Outrigger. `make image` builds the last stage without a container
# engine, from the same root filesystem and the instructions below.
#
#   docker build --build-arg REVISION=$(git rev-parse HEAD) --tag registry.example/outrigger:0.1.0 .

# The digest is the multi-platform index's; change it together with the tag.
ARG RUST=docker.io/library/rust:1.95-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082

FROM ${RUST} AS build
# Only to fetch ONNX Runtime: whatever their versions, the image is the same.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes python3-pip \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The commit, as an argument, because the context is not a repository.
ARG REVISION=unknown
RUN OUTRIGGER_REVISION="${REVISION}" deploy/image/build --locked \
    && deploy/image/onnxruntime /onnxruntime \
    && deploy/image/rootfs target/dist/outrigger /rootfs /onnxruntime

FROM scratch
# The version in Cargo.toml.
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Outrigger" \
      org.opencontainers.image.description="Model serving with TensorFlow Serving, models as OCI images, no restarts" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /rootfs /
# The allocator must not use huge pages, even if the node enables them for all programs.
ENV PATH=/usr/local/bin MIMALLOC_ALLOW_THP=0
USER 65532:65532
# gRPC, HTTP, health and metrics. The admin listener stays on loopback.
EXPOSE 9000 9080 9902
ENTRYPOINT ["outrigger"]
CMD ["serve"]
