"""Answers about programs, as data and for a terminal.

==============  =================================================================
``audit``       replays and shared executables, compared with what jax does anew
``cost``        what executing a program costs
``diff``        where two programs differ
``equations``   equations of a program and of its nested programs
``liveness``    which values are alive when
``queries``     questions about the equations of a program
``tables``      tables for a terminal
==============  =================================================================
"""
