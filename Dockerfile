# syntax=docker/dockerfile:1
# The server alone, on an image without a shell or a package manager:
#
#     docker build --build-arg GIT_COMMIT=$(git rev-parse HEAD) -t coordination-apiserver:0.1.0 .
#
# Both stages are Debian 12, so the binary meets the C library that it was linked with. The compiler is that of
# rust-toolchain.toml, which is not copied, since it asks for clippy and rustfmt too; tests/toolchain.rs compares the two.
ARG RUST_VERSION=1.95.0

FROM rust:${RUST_VERSION}-bookworm AS build
WORKDIR /source
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY loadgen loadgen
COPY crashtest crashtest
COPY perf perf
COPY sim sim
# What `--version`, `/version` and the metric kubernetes_build_info say.
ARG GIT_COMMIT=
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    GIT_COMMIT=$GIT_COMMIT cargo build --release --locked --bin coordination-apiserver \
    && install -D --strip target/release/coordination-apiserver /image/coordination-apiserver

FROM gcr.io/distroless/cc-debian12:nonroot
ARG GIT_COMMIT=
LABEL org.opencontainers.image.title="coordination-apiserver" \
      org.opencontainers.image.description="A Kubernetes API server for Leases" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="$GIT_COMMIT" \
      org.opencontainers.image.source="https://github.com/coordination-apiserver/coordination-apiserver" \
      org.opencontainers.image.version="0.1.0"
COPY --from=build /image/coordination-apiserver /usr/local/bin/coordination-apiserver
# The user "nonroot" of the base image, as a number: a kubelet that has to keep root out cannot look names up.
USER 65532:65532
# glibc gives the free end of its heap back in one call, which in the deletion of a million Leases holds up the loop for
# up to 5 ms (docs/performance.md). Without, what the heap has taken stays with the process, whose limit is for its peak
# anyway. The second value is what glibc comes to by itself, unless the first is set.
ENV GLIBC_TUNABLES=glibc.malloc.trim_threshold=1000000000000:glibc.malloc.mmap_threshold=33554432
EXPOSE 8443
ENTRYPOINT ["/usr/local/bin/coordination-apiserver"]
