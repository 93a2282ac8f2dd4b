# syntax=docker/dockerfile:1
# The server only, on an image without a shell or a package manager:
#
#     docker build --build-arg GIT_COMMIT="$(git diff --quiet HEAD && git rev-parse HEAD)" -t coordination-apiserver:0.1.0 .
#
# Both stages are Debian 12, so the binary finds the C library that it was linked with. The compiler's version is that of
# rust-toolchain.toml. That file is not copied, since it also requires clippy and rustfmt. tests/toolchain.rs compares the
# versions.
ARG RUST_VERSION=1.95.0
# For a repeatable build, set both images by digest: --build-arg BASE_IMAGE=gcr.io/distroless/cc-debian12@sha256:…
ARG BUILD_IMAGE=rust:${RUST_VERSION}-bookworm
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /source
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY loadgen loadgen
COPY crashtest crashtest
COPY perf perf
COPY sim sim
# The commit in `--version`, `/version` and the metric kubernetes_build_info.
ARG GIT_COMMIT=
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    GIT_COMMIT=$GIT_COMMIT cargo build --release --locked --bin coordination-apiserver \
    && install -D --strip target/release/coordination-apiserver /image/coordination-apiserver

FROM ${BASE_IMAGE}
ARG BASE_IMAGE
ARG GIT_COMMIT=
LABEL org.opencontainers.image.title="coordination-apiserver" \
      org.opencontainers.image.description="A Kubernetes API server for Leases" \
      org.opencontainers.image.base.name="$BASE_IMAGE" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$GIT_COMMIT" \
      org.opencontainers.image.source="https://github.com/coordination-apiserver/coordination-apiserver" \
      org.opencontainers.image.version="0.1.0"
COPY --from=build /image/coordination-apiserver /usr/local/bin/coordination-apiserver
# The base image's user "nonroot", as a number: a kubelet with runAsNonRoot cannot resolve names.
USER 65532:65532
# glibc returns the free end of its heap in one call. During the deletion of a million Leases, that call delays the
# event loop by up to 5 ms (docs/performance.md). With this trim_threshold, the process keeps its freed heap. The memory
# limit of the process must allow for the peak anyway. A set trim_threshold stops glibc from raising mmap_threshold to
# its usual final value, so that value is set too.
ENV GLIBC_TUNABLES=glibc.malloc.trim_threshold=1000000000000:glibc.malloc.mmap_threshold=33554432
EXPOSE 8443
ENTRYPOINT ["/usr/local/bin/coordination-apiserver"]
