"""A toy engine: behaves as vLLM and SGLang do where it matters to whoever supervises them, and needs no GPU."""
