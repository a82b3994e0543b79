"""pmem: a memory policy that runs beside an agent and says one short cited reminder, or nothing."""

__version__ = "0.1.0"
