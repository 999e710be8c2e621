"""What a frozen net knows of the pictures: features after every block, judged by a classifier in closed form."""
