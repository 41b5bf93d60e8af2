"""Answers about programs, as data and for a terminal.

==============  =================================================================
``audit``       replays and shared executables, compared with what jax does anew
``cost``        what executing a program costs
``diff``        where two programs differ
``diff_rows``   equations, inputs and results that differ
``diff_stat``   how much differs, by name scope
``diff_text``   a diff as text, and in colour
``diff_page``   a diff as a page of HTML
``equations``   equations of a program and of its nested programs
``liveness``    which values are alive when
``queries``     questions about the equations of a program
``run``         what was traced, lowered and compiled in a run
``scopes``      name scopes, and the parameters that their equations read
``tables``      tables for a terminal
==============  =================================================================
"""
