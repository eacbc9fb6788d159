"""The storage engine: Kafka's log directories, read and written as a broker reads and writes them.

This package is the only door to the engine: the layers above import every name from here.
`__init__.pyi` lists the names, each with the module that defines and documents it. A name is loaded
when it is first imported, so that a command loads only the parts of the engine that it uses.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
