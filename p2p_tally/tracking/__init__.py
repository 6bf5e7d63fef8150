"""Figures of a run for the tools that people watch experiments with: `--log tensorboard|wandb|mlflow`."""
