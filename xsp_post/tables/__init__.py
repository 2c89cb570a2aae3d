"""Every table is declared once (`catalogue`) and made by one engine (`graph`), whichever command asks for it."""
