"""Changes of the world between two traces: kinds of change, programs, and the comparison.

A *kind* makes a world: a function that rests on something, and what changes that something and puts
it back. A *program* puts the function into a construct of jax's. A *history* traces the program
before, after, and within the change. What stock jax makes of a history is what jaxide has to make
of it.
"""
