# Headlight for a class: the command, its bundled models, and nothing that is fetched at run time.
#
#   docker build --build-arg TORCH_INDEX=... -t headlight .
#
# TORCH_INDEX is the package index that PyTorch names for builds without CUDA ("CPU" at its page "Get started"). Without
# it pip takes PyTorch's own default, with several gigabytes for graphics cards.
FROM python:3.12-slim AS build
ARG TORCH_INDEX=""
WORKDIR /src
RUN python -m venv /opt/headlight
COPY constraints.txt ./
RUN TORCH=$(grep '^torch==' constraints.txt) \
 && /opt/headlight/bin/pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH"
COPY pyproject.toml README.md LICENSE streamlit_app.py ./
COPY bert_core bert_core
COPY viz_app viz_app
RUN sed '/^torch==/d' constraints.txt > pins.txt && /opt/headlight/bin/pip install --no-cache-dir -c pins.txt .

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 headlight
COPY --from=build /opt/headlight /opt/headlight
USER headlight
WORKDIR /home/headlight
ENV PATH=/opt/headlight/bin:$PATH HF_HUB_OFFLINE=1
EXPOSE 8501
# A server that was asked to stop says 503, and finishes what runs: give it a minute (docker stop --time 70).
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]
ENTRYPOINT ["headlight", "app", "--address", "0.0.0.0", "--port", "8501"]
