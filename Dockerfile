# The gateway alone: it attaches to a Pulsar that already runs.
#   docker build -t kafka-gateway .
#   docker run -p 9092:9092 -v ./gateway.toml:/etc/kafka-gateway/gateway.toml:ro kafka-gateway
# In gateway.toml set [kafka] host = "0.0.0.0" and advertised_host to the name by which clients reach the container.

FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/kafka-gateway
COPY pyproject.toml README.md LICENSE ./
COPY gateway ./gateway
COPY coordinator ./coordinator
COPY protocol ./protocol
COPY deploy ./deploy
RUN /opt/kafka-gateway/bin/pip install --no-cache-dir .

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin kafka-gateway
COPY --from=build /opt/kafka-gateway /opt/kafka-gateway
ENV PATH=/opt/kafka-gateway/bin:$PATH PYTHONUNBUFFERED=1
USER kafka-gateway
EXPOSE 9092 9464
STOPSIGNAL SIGTERM
ENTRYPOINT ["kafka-gateway"]
CMD ["serve", "--config", "/etc/kafka-gateway/gateway.toml"]
