"""The dedicated memory route: in process on transformers, or behind vLLM with hard capacity limits."""
