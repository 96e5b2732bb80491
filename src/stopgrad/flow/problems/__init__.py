"""What keeps a training from training: findings as data, their catalogue, and the report that shows them."""
