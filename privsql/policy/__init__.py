"""What may be answered: decided between the scan and the reconstruction."""
