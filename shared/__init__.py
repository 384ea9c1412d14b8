"""The code that every daemon shares; it imports no other package of this product."""
