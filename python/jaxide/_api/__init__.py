"""What users call to trace, and to have all traces of the process accelerated.

====================  ==========================================================
``make_jaxpr``        ``make_jaxpr``, ``trace``, ``from_jaxpr``
``abstracted_axes``   named axes as symbolic dimensions
``install``           ``install``, ``uninstall``, ``accelerated``
``cache``             ``cache_info``, ``clear_caches``
``warm``              the store: settings, opening, writing
``status``            ``status``
``logs``              what the ``logging`` library is told, ``JAXIDE_LOG``
``run``               ``report_run``
``settings``          ``settings``
====================  ==========================================================
"""
