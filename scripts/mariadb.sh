#!/usr/bin/env bash
# A private MariaDB in a directory of its own, on a free port of 127.0.0.1.
#
#   scripts/mariadb.sh start DIR   starts it and prints mysql://ax:PASSWORD@127.0.0.1:PORT
#   scripts/mariadb.sh stop DIR    stops it; the data stays
#   scripts/mariadb.sh with CMD…   runs a command with AX_TEST_MYSQL set to a fresh one,
#                                  which is gone afterwards, also when the command fails
#
# With AX_FAKETIME=FILE the server's clock is off by what the file says (+7200s; libfaketime),
# and follows when the file changes.
#
# No other MariaDB on the machine is touched: options files are not read, and only the
# process whose id is in DIR is ever stopped. Started by root, it runs as user mysql.
set -euo pipefail
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

say() { echo "mariadb.sh: $*" >&2; }

find_program() {
  local name
  for name in "$@"; do
    if command -v "$name" >/dev/null; then command -v "$name"; return; fi
  done
  say "$1 is not installed; scripts/test-setup.sh installs it on Debian"
  return 1
}

# user_option prints the option that makes MariaDB give up root's rights.
user_option() { if [ "$(id -u)" = 0 ]; then echo "--user=mysql"; fi; }

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port"; return; fi
  done
}

secret() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

faketime_library() {
  local file
  for file in /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1; do
    if [ -e "$file" ]; then echo "$file"; return; fi
  done
  say "libfaketime is not installed; scripts/test-setup.sh installs it on Debian"
  return 1
}

start() {
  local dir=$1 server install password port try
  # Temporary tables lie in a place of its own: a starting MariaDB sweeps what others left in a shared one.
  mkdir -p "$dir/tmp"
  dir=$(cd "$dir" && pwd)
  if [ -f "$dir/pid" ] && kill -0 "$(cat "$dir/pid")" 2>/dev/null; then
    cat "$dir/dsn"
    return
  fi
  server=$(find_program mariadbd mysqld)
  install=$(find_program mariadb-install-db mysql_install_db)
  if [ "$(id -u)" = 0 ]; then
    chown mysql "$dir" "$dir/tmp"
    if command -v runuser >/dev/null && ! runuser -u mysql -- test -w "$dir"; then
      say "user mysql can not reach $dir; choose a directory whose parents everybody may enter"
      return 1
    fi
  fi
  if [ ! -d "$dir/data/mysql" ]; then
    # shellcheck disable=SC2046 # the option is one word or none
    "$install" --no-defaults $(user_option) --datadir="$dir/data" --tmpdir="$dir/tmp" --auth-root-authentication-method=normal --skip-test-db >"$dir/install.log" 2>&1 ||
      { cat "$dir/install.log" >&2; return 1; }
  fi
  local fake=()
  if [ -n "${AX_FAKETIME:-}" ]; then
    # The monotonic clock stays: timeouts are not what is tested.
    fake=(env "LD_PRELOAD=$(faketime_library)" "FAKETIME_TIMESTAMP_FILE=$AX_FAKETIME" FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1)
  fi
  password=$(secret)
  # Root without a password may log in through the socket only while no network user is root.
  cat >"$dir/init.sql" <<SQL
DELETE FROM mysql.global_priv WHERE User IN ('root', '', 'ax');
FLUSH PRIVILEGES;
CREATE USER 'ax'@'127.0.0.1' IDENTIFIED BY '$password';
GRANT ALL PRIVILEGES ON *.* TO 'ax'@'127.0.0.1' WITH GRANT OPTION;
SQL
  if [ "$(id -u)" = 0 ]; then chown mysql "$dir/init.sql"; fi
  chmod 600 "$dir/init.sql"
  for try in 1 2 3 4 5; do
    port=$(free_port)
    # Tests ask for many commits and for no survival of a power cut.
    # shellcheck disable=SC2046
    nohup "${fake[@]}" "$server" --no-defaults $(user_option) --datadir="$dir/data" --tmpdir="$dir/tmp" --socket="$dir/s" --pid-file="$dir/server.pid" \
      --bind-address=127.0.0.1 --port="$port" --skip-name-resolve --init-file="$dir/init.sql" \
      --innodb-flush-log-at-trx-commit=2 --innodb-buffer-pool-size=128M --max-connections=400 --performance-schema=OFF \
      >"$dir/server.log" 2>&1 </dev/null &
    echo $! >"$dir/pid"
    for _ in $(seq 150); do
      kill -0 "$(cat "$dir/pid")" 2>/dev/null || break
      if grep -qs 'ready for connections' "$dir/server.log" && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        echo "mysql://ax:$password@127.0.0.1:$port" >"$dir/dsn"
        chmod 600 "$dir/dsn"
        rm -f "$dir/init.sql"
        cat "$dir/dsn"
        return
      fi
      sleep 0.2
    done
    say "try $try: it did not come up on port $port"
    stop "$dir"
  done
  tail -30 "$dir/server.log" >&2
  return 1
}

stop() {
  local dir=$1 pid
  [ -f "$dir/pid" ] || return 0
  pid=$(cat "$dir/pid")
  if kill "$pid" 2>/dev/null; then
    for _ in $(seq 150); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
  rm -f "$dir/pid" "$dir/dsn"
}

with() {
  if [ -n "${AX_TEST_MYSQL:-}" ]; then
    say "AX_TEST_MYSQL is set: that server is used"
    "$@"
    return
  fi
  local dir
  dir=$(mktemp -d "${TMPDIR:-/tmp}/ax-mariadb.XXXXXX")
  # shellcheck disable=SC2064 # the directory of now
  trap "stop '$dir'; rm -rf '$dir'" EXIT
  trap 'exit 130' INT TERM
  AX_TEST_MYSQL=$(start "$dir")
  export AX_TEST_MYSQL
  "$@"
}

case "${1:-}" in
  start) start "${2:?the directory is missing}" ;;
  stop) stop "${2:?the directory is missing}" ;;
  with) shift; with "$@" ;;
  *) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
