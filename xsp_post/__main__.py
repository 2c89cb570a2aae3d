"""`python -m xsp_post`: the command line."""

from xsp_post.base.module_path import leave_current_folder

if __name__ == "__main__":
    leave_current_folder()  # before any other import: `python -m` looks there first

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` is reached: no traceback out of an import

from xsp_post.cli import main

if __name__ == "__main__":
    main()
