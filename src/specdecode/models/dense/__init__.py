"""The fast runtime for dense decoder stacks, behind the LM protocol. `model` is the way in."""
