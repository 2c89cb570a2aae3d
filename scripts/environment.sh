# Sourced by scripts/test and scripts/quickstart from the repository's root: the project's own environment.

# ensure_environment all|run|plain: make .venv if needed and install the project, editable, with what that
# purpose needs. Done once: a stamp file remembers pyproject.toml and the purpose. Set PYTHON to choose the
# interpreter (3.10 or newer).
ensure_environment() {
  local purpose=$1 python=${PYTHON:-python3} stamp want extras
  case $purpose in
    all) extras='[run,ncu,cluster,perfetto,mcp,xlsx,pictures,dev]' ;;
    run) extras='[run]' ;;
    plain) extras='' ;;
  esac
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "xsp-post needs Python 3.10 or newer; name one: PYTHON=python3.12 $0" >&2
    return 1
  }
  [[ -x .venv/bin/python ]] || "$python" -m venv .venv || {
    echo "$python cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2
    return 1
  }
  want=$(cksum <pyproject.toml)
  for stamp in .venv/.installed-all ".venv/.installed-$purpose"; do # the stamp of its own purpose last
    [[ -f $stamp && $(<"$stamp") == "$want" ]] && return 0
  done
  local packages=(-e ".$extras")
  # Any torch from 2.4 on does. Where none is there yet, take the version the tests were written with,
  # so that a fresh machine and CI agree; it is not a requirement of the package (pyproject.toml).
  if [[ $purpose != plain ]] && ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    packages+=('torch==2.13.0')
  fi
  .venv/bin/python -m pip install -qq --disable-pip-version-check "${packages[@]}" || return 1
  printf '%s\n' "$want" >"$stamp"
}
