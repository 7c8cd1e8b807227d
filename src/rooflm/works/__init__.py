"""Published works on predicting and measuring language models, each as a short table of scenarios and references."""
