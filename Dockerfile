# The server, `ashlar serve`. `make image` builds it (tools/image.sh): the binary comes from the Go toolchain of the machine.
#
# A store in a file belongs into the volume /data. Without arguments the server keeps one there, takes every type, and listens on the
# container's own addresses only: name --listen, --http, certificates and tokens as in docs/service.md.
FROM scratch
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY ashlar /ashlar
COPY --chown=65532:65532 data /data
COPY --chown=65532:65532 tmp /tmp
USER 65532:65532
ENV ASHLAR_STORE=sqlite:///data/store.db
VOLUME /data
EXPOSE 8500 8502
ENTRYPOINT ["/ashlar"]
CMD ["serve", "--any-type"]
