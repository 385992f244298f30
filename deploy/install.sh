#!/usr/bin/env bash
# Installs what `make run`, `make test` or `make lint` need and this machine lacks.
#
#   deploy/install.sh run|test|lint [--check]
#
# As root on Debian or a relative of it, packages come from apt. Anybody else is told
# what is missing: `run` goes on all the same, since `flashgate dev` can download
# PostgreSQL by itself; `test` stops with an error. With --check nothing is installed;
# the exit status says whether anything is missing.
#
# No service is started and no database cluster is created: flashgate runs private
# servers. Where nothing is missing this takes well under a second.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=$root/.cache
oldest_postgres=15
oldest_java=17
kafka_jar=kafka_2.13-4.3.1.jar
golangci_version=2.15.0

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# quietly keeps the pages that a command writes in a file, and shows their end if it fails.
quietly() {
  local log=$cache/$1
  shift
  "$@" </dev/null >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    return 1
  }
}

usage() { die "usage: deploy/install.sh run|test|lint [--check]"; }

# --- what is there -----------------------------------------------------------

# have_postgres: programs of a new enough version, where internal/devstack looks for them.
have_postgres() {
  local on_path dir version
  on_path=$(command -v postgres || true)
  for dir in ${on_path:+"${on_path%/*}"} /usr/lib/postgresql/*/bin; do
    [[ -x $dir/postgres && -x $dir/initdb ]] || continue
    version=$("$dir/postgres" --version 2>/dev/null | sed -nE 's/.*\(PostgreSQL\) ([0-9]+).*/\1/p')
    [[ ${version:-0} -ge $oldest_postgres ]] && return 0
  done
  return 1
}

java_command() { command -v java || { [[ -x ${JAVA_HOME:-}/bin/java ]] && echo "$JAVA_HOME/bin/java"; }; }

have_java() {
  local java version
  java=$(java_command) || return 1
  version=$("$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1)
  [[ ${version:-0} -ge $oldest_java ]]
}

# have_c_compiler: the race detector is linked with it, and needs the C library's headers.
have_c_compiler() {
  printf '#include <stdlib.h>\nint main(void) { return 0; }\n' |
    "$(go env CC)" -x c -o /dev/null - 2>/dev/null
}

have_certificates() { [[ -s /etc/ssl/certs/ca-certificates.crt || -d /etc/pki/tls || -s /etc/ssl/cert.pem ]]; }

# have_jars: fetched by the pom.xml as it is now.
have_jars() {
  [[ -s $cache/kafka/libs/$kafka_jar ]] && cmp -s "$root/deploy/kafka/pom.xml" "$cache/kafka/libs/pom.xml"
}

have_golangci() {
  local found
  found=$("$cache/bin/golangci-lint" version 2>/dev/null) && [[ $found == *" $golangci_version "* ]]
}

# have_browser: one that internal/e2e looks for. The page for storefronts is tried in it.
have_browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

# missing_packages: what apt would have to install for `run`, `test` or `lint`.
missing_packages() {
  have_certificates || echo ca-certificates
  [[ $1 != lint ]] || return 0
  have_postgres || echo postgresql
  [[ $1 == test ]] || return 0
  command -v redis-server >/dev/null || echo redis-server
  have_java || echo default-jre-headless
  have_jars || command -v mvn >/dev/null || echo maven
  have_browser || echo chromium
  have_c_compiler || printf '%s\n' gcc libc6-dev
}

# --- apt ---------------------------------------------------------------------

policy=/usr/sbin/policy-rc.d
policy_mark='# written by flashgate deploy/install.sh: no service is started meanwhile'
cluster_conf=/etc/postgresql-common/createcluster.conf

# restore puts back what was changed around apt: settings of the machine are not ours.
restore() {
  if [[ -e $policy ]] && grep -qF "$policy_mark" "$policy"; then rm -f "$policy"; fi
  if [[ -e $policy.before-flashgate ]]; then mv -f "$policy.before-flashgate" "$policy"; fi
  if [[ -e $cluster_conf.before-flashgate ]]; then mv -f "$cluster_conf.before-flashgate" "$cluster_conf"; fi
}

apt_get() {
  DEBIAN_FRONTEND=noninteractive \
    quietly apt.log apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -qq "$@"
}

apt_install() { apt_get install -y --no-install-recommends "$@"; }

install_packages() {
  say "installing $*"
  trap restore EXIT
  restore # what an earlier run left that was killed
  if [[ -e $policy ]]; then mv "$policy" "$policy.before-flashgate"; fi
  printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
  chmod 755 "$policy"

  apt_get update || say "apt-get update failed; trying with the lists that are there"
  if [[ " $* " == *" postgresql "* ]]; then
    # The configuration of postgresql-common decides whether its dependants make a cluster.
    apt_install postgresql-common
    cp -p "$cluster_conf" "$cluster_conf.before-flashgate"
    sed -i -E '/^[#[:space:]]*create_main_cluster[[:space:]]*=/d' "$cluster_conf"
    echo 'create_main_cluster = false' >>"$cluster_conf"
  fi
  apt_install "$@"
  if [[ " $* " == *" redis-server "* ]]; then # not at the next boot either
    if command -v systemctl >/dev/null; then
      systemctl disable --quiet redis-server 2>/dev/null || true
    elif command -v update-rc.d >/dev/null; then
      update-rc.d redis-server disable >/dev/null 2>&1 || true
    fi
  fi
  restore
  trap - EXIT
}

# --- the rest ----------------------------------------------------------------

# fetch_jars fetches the jars of Kafka beside their place and moves them there when the
# broker's own class answers from them.
fetch_jars() {
  local fresh=$cache/kafka/libs.new
  say "fetching the jars of Kafka"
  rm -rf "$fresh"
  mkdir -p "$fresh"
  quietly maven.log mvn -q -B -f "$root/deploy/kafka/pom.xml" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$fresh"
  [[ -s $fresh/$kafka_jar ]] || die "maven brought no $kafka_jar"
  "$(java_command)" -cp "$fresh/*" kafka.Kafka --version </dev/null >/dev/null 2>&1 ||
    die "the jars of Kafka in $fresh do not work together"
  cp "$root/deploy/kafka/pom.xml" "$fresh/pom.xml"
  rm -rf "$cache/kafka/libs"
  mv "$fresh" "$cache/kafka/libs"
}

install_golangci() {
  say "building golangci-lint $golangci_version, which takes some minutes once"
  GOBIN=$cache/bin quietly golangci.log go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$golangci_version"
}

# report names everything that is missing at once and says how to get it.
report() {
  local purpose=$1
  shift
  say "missing for make $purpose: $*"
  say "as root: apt-get install --no-install-recommends $*"
}

# --- the command -------------------------------------------------------------

[[ $# -ge 1 && $# -le 2 ]] || usage
purpose=$1
check=${2:-}
[[ $check == "" || $check == --check ]] || usage
command -v go >/dev/null || die "Go is missing: install the version named in go.mod, or a newer one"

# One at a time: two of these would fetch into the same places.
mkdir -p "$cache"
if command -v flock >/dev/null; then
  exec 9>"$cache/install.lock"
  flock -w 1800 9 || die "another install.sh runs for half an hour already"
fi

case $purpose in run | test | lint) ;; *) usage ;; esac

install_missing() {
  mapfile -t missing < <(missing_packages "$purpose")
  if [[ ${#missing[@]} -gt 0 && -z $check && $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    install_packages "${missing[@]}"
    mapfile -t missing < <(missing_packages "$purpose")
  fi
  [[ ${#missing[@]} -gt 0 ]] || return 0
  report "$purpose" "${missing[@]}"
  [[ $purpose == run && -z $check ]] || exit 1
  say "going on: flashgate dev downloads PostgreSQL where there is none"
}

install_missing
if [[ $purpose == test ]] && ! have_jars; then
  [[ -z $check ]] || die "missing for make test: the jars of Kafka"
  fetch_jars
fi
if [[ $purpose == lint ]] && ! have_golangci; then
  [[ -z $check ]] || die "missing for make lint: golangci-lint $golangci_version"
  install_golangci
fi
