"""`python -m xsp_post`: the command line."""

from xsp_post.cli import main

if __name__ == "__main__":
    main()
