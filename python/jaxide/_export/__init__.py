"""Programs in other formats: ``docs/export.md``.

=================  ===========================================================================
``model``          a program and those within as data, which all formats are made of
``json``           JSON, whose schema is ``program.schema.json``
``python``         source code that rebuilds the function; ``expressions`` writes values
``dot``            Graphviz
``html``           one page, from ``page.html``, ``page.css`` and ``page.js``
``pprof``          a profile
``model_explorer`` Google's Model Explorer
``files``          writing files
=================  ===========================================================================
"""
