"""Results → short answers for programs that ask in words: one folder, read-only, each answer with what is not known.

`folder` says which files may be read, `answers` makes the answers,
`server` offers them over the Model Context Protocol.
"""
