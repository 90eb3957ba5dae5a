"""The portable graphs on a GPU, where there is one: are they right, and how near to the floor?"""
