"""``Program``: a traced program that Rust owns.

===============  ==========================================================
``program``      the class, and ``load``
``passes``       what ``Program.optimize`` asks of Python
``files``        files that exist whole or not at all
``checks``       what numbers and names that are given may be; whether anything may be done
``distributed``  whether all processes of a run have the same program
===============  ==========================================================
"""
