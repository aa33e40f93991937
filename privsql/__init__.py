"""SQL over perturbed data: counts are reconstructed and every answer carries its error."""
