"""Taking orders: what is sold, what has been confirmed so far, and what an answer is made from."""
