"""Text in, text out: prompts, chat templates, streaming, stop strings. The only package that knows strings."""
