"""What the core calls back: what only Python says of functions, values and classes.

Nothing here knows a version of jax: what depends on one is handed in by :mod:`jaxide._compat`.

======================  ========================================================================
``addresses``           facts about objects, for as long as the objects live
``bounded``             dicts that hold as many values as fit
``classes``             members of named tuples and enums that say nothing about them
``content``             objects as bytes: equal bytes, equal for lowering and running
``debug_names``         names of arguments and results
``derivative_rules``    functions that trace derivative rules
``described_trees``     trees of arguments and results as plain values
``entries``             objects of the entries of the store
``global_names``        classes, functions and other callables of modules by name
``instrumented``        code of jax's functions with calls of jaxide in it
``interposed``          which functions of jax are interposed
``interruptions``       exceptions that signal handlers raise
``jit_arguments``       arguments of jits as jax's cache of traces tells them apart
``jit_programs``        programs of jits of jax's own that the store has
``kept_programs``       what jax keeps of a trace beyond the program
``module_code``         what the code of a module assigns, and what its source says
``objects``             objects of programs: descriptions that outlive the process, equality
``portable``            names that mean the same in every process
``printing``            texts of objects of programs
``program_files``       programs in files, and what is left out of them
``pure_functions``      which functions are pure by analysis of their code
``registrations``       what the functions do that classes are registered with
``requests``            by which call of its own jit jax makes a program
``roles``               which parts of jax matter to traces, lowering and printing
``rule_contents``       what a derivative rule of somebody's consists of
``rule_sources``        the sources of the modules that such a rule may use
``storage``             objects of stored programs
``stored_rules``        derivative rules in a stored program
``symbolic_texts``      how much it is to read the text of symbolic dimensions
``trampolines``         code of functions of jax that passes their arguments to a hook
``trust``               which functions and values are jax's own
``whole_traces``        functions that are traced as a whole, and their programs in the store
``world``               how jax differs from what jaxide first saw
======================  ========================================================================
"""
