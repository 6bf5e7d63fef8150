"""What a peer learns and how: data, models, training, consensus. No network."""
