"""Words for what hibari's own tables lack."""

from calendar import month_abbr, month_name

from python_backends.spoken.rules import Said

CURRENCIES = {
    "₽": "rubles",
    "₿": "bitcoin",
    "₺": "lira",
    "₪": "shekels",
    "₫": "dong",
    "₴": "hryvnias",
    "₦": "naira",
    "₱": "pesos",
}
COUNTRIES = {
    "US": "US",
    "CA": "Canadian",
    "C": "Canadian",
    "AU": "Australian",
    "A": "Australian",
    "NZ": "New Zealand",
    "HK": "Hong Kong",
    "S": "Singapore",
}
"""Whose dollars they are."""

LARGE = {"k": "thousand", "K": "thousand", "M": "million", "B": "billion", "bn": "billion"}

MONTHS = (*month_name[1:], *month_abbr[1:], "Sept")

COMPARED = (
    *("as", "more", "less", "fewer", "the", "speed", "faster", "slower", "bigger", "larger"),
    *("smaller", "better", "worse", "higher", "lower", "longer", "shorter", "cheaper", "greater"),
)
"""What "2x" before it is "two times" for; before a thing it is a count."""

PERIODS = {
    "s": "second",
    "sec": "second",
    "min": "minute",
    "minute": "minute",
    "h": "hour",
    "hr": "hour",
    "hour": "hour",
    "day": "day",
    "night": "night",
    "wk": "week",
    "week": "week",
    "mo": "month",
    "month": "month",
    "yr": "year",
    "year": "year",
    "person": "person",
    "user": "user",
    "kg": "kilogram",
    "lb": "pound",
    "mile": "mile",
    "item": "item",
}
"""What an amount may be per: $5/mo."""

UNITS = {
    "m": ("meter", "meters"),
    "m²": ("square meter", "square meters"),
    "m³": ("cubic meter", "cubic meters"),
    "km²": ("square kilometer", "square kilometers"),
    "cm²": ("square centimeter", "square centimeters"),
    "m/s": ("meter per second", "meters per second"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "g": ("gram", "grams"),
    "L": ("liter", "liters"),
    "l": ("liter", "liters"),
    "mL": ("milliliter", "milliliters"),
    "dl": ("deciliter", "deciliters"),
    "h": ("hour", "hours"),
    "kcal": ("kilocalorie", "kilocalories"),
    "V": ("volt", "volts"),
    "W": ("watt", "watts"),
    "Wh": ("watt hour", "watt hours"),
    "dB": ("decibel", "decibels"),
    "kPa": ("kilopascal", "kilopascals"),
    "ha": ("hectare", "hectares"),
    "tsp": ("teaspoon", "teaspoons"),
    "tbsp": ("tablespoon", "tablespoons"),
}

ABBREVIATIONS: tuple[tuple[str, Said], ...] = (
    (r"\b[eE]\.\s?g\.", "for example"),
    (r"\b[iI]\.\s?e\.", "that is"),
    (r"\b[tT]el\.(?=\s)", "telephone"),
    (r"\b[eE]xt\.(?=\s?\d)", "extension"),
    (r"\bincl\.", "including"),
    (r"\bexcl\.", "excluding"),
    (r"\bavg\.", "average"),
    (r"\bmisc\.", "miscellaneous"),
    (r"\bAppt\.", "appointment"),
    (r"(?<!\w)p\.(?=\s?\d)", "page"),
    (r"\b401\(?k\b\)?", "4 O 1 K"),
    (r"\b[Cc]trl\b", "control"),
    (r"\bC\+\+", "C plus plus"),
    (r"\b([A-G])#(?!\w)", r"\1 sharp"),
    (r"(?<![\w$])\$(?=\s)", "dollar"),
)
"""Patterns and what they are read as."""
