# One static program and nothing else: no shell, no libraries. `make image` builds the program into dist/ and then this.
FROM scratch
ARG TARGETARCH
ARG VERSION
ARG COMMIT_HASH
ARG BUILD_DATE
LABEL org.opencontainers.image.title="kube-node-ready" \
      org.opencontainers.image.description="Keeps new Kubernetes nodes closed until they have proven that they can do their work" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT_HASH}" \
      org.opencontainers.image.created="${BUILD_DATE}"
COPY dist/${TARGETARCH}/kube-node-ready /kube-node-ready
USER 1000:1000
ENTRYPOINT ["/kube-node-ready"]
