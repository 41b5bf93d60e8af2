"""Programs in other formats: ``docs/export.md``.

=================  ===========================================================================
``model``          a program and its nested programs as data, which all formats are made of
``json``           JSON, whose schema is ``program.schema.json``
``python``         source code that rebuilds the function
``expressions``    values as source code
``python_helpers`` functions whose text is copied into that source code
``dot``            Graphviz
``html``           one page, from ``page.html``, ``page.css``, ``page_charts.js`` and ``page.js``
``run_page``       the report of a run as a page, from ``run_page.html`` and what is beside
``pprof``          a profile
``model_explorer`` Google's Model Explorer
=================  ===========================================================================
"""
