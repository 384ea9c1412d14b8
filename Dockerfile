# One image for every daemon: `docker compose up` starts each in a container of its own.
# The same Python as the checks run on. Both stages begin with it: a virtual environment belongs to its interpreter.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
WORKDIR /build
RUN python -m venv /opt/butlers
# The packages first: they change seldom, so this layer is built seldom.
COPY requirements.lock ./
RUN /opt/butlers/bin/python -m pip install --no-deps --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY shared ./shared
COPY butlers ./butlers
COPY switchboard ./switchboard
COPY messenger ./messenger
COPY migrations ./migrations
RUN /opt/butlers/bin/python -m pip install --no-deps --no-build-isolation --no-index . \
    && /opt/butlers/bin/python -m pip uninstall --yes setuptools pip

FROM python:${PYTHON}
# A new named volume gets its owner from the image's folder.
RUN groupadd --gid 10001 butlers \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/butlers --shell /usr/sbin/nologin butlers \
    && install --directory --owner=10001 --group=10001 --mode=0755 /run/database /run/console \
    && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/butlers /var/lib/butlers/sandbox \
        /var/lib/butlers/sessions \
        /var/lib/butlers/keys /var/lib/butlers/keys/owner \
    && for name in switchboard messenger console up; do \
        install --directory --owner=10001 --group=10001 --mode=0700 "/var/lib/butlers/keys/${name}"; \
    done
COPY --from=build /opt/butlers /opt/butlers
ENV PATH=/opt/butlers/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    BUTLERS_HOME=/var/lib/butlers
WORKDIR /var/lib/butlers
# By number, so that an orchestrator can see that it is not root. Writes go to mounted volumes and /tmp only.
USER 10001:10001
ENTRYPOINT ["butlers"]
CMD ["--help"]
