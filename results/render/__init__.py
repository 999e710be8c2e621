"""What commands print and draw: tables, nets, plots. Rich and matplotlib are used here."""
