# The demo and the command `headscope`, on the CPU:  docker build -f docker/cpu.Dockerfile -t headscope:cpu .
# run.sh pins torch and knows the packages; the second stage has neither compiler nor sources.
FROM debian:bookworm-20250113-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# Builds the demo and the command, and runs neither.
RUN ./run.sh demo --help
# The programs, and the libraries of torch that they load.
RUN mkdir -p /opt/headscope/bin /opt/headscope/lib /opt/headscope/share \
    && cp build/bin/attention_only_lm build/bin/headscope /opt/headscope/bin/ \
    && cp -a build/lib/libheadscope.so* /opt/headscope/lib/ \
    && cp -a .venv/lib/python3*/site-packages/torch/lib/*.so* /opt/headscope/lib/ \
    && cp plugin/examples/data/*.txt /opt/headscope/share/

FROM debian:bookworm-20250113-slim
RUN apt-get update && apt-get install -y --no-install-recommends curl libcivetweb1 libprometheus-cpp-core1.0 \
        libsqlite3-0 libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin headscope \
    && install -d -o headscope -g headscope /runs
COPY --from=build /opt/headscope /opt/headscope
COPY docker/demo.sh docker/healthy.sh /opt/headscope/bin/
ENV LD_LIBRARY_PATH=/opt/headscope/lib HEADSCOPE_CORPUS=/opt/headscope/share/tinyshakespeare.txt OMP_WAIT_POLICY=PASSIVE
USER 10001:10001
VOLUME /runs
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["/opt/headscope/bin/healthy.sh"]
ENTRYPOINT ["/opt/headscope/bin/demo.sh"]
