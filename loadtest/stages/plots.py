def draw(detail, folder):
    return []
