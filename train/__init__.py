"""SFT, then GRPO on pivot turns."""
