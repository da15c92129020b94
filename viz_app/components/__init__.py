"""Our own browser views, as Streamlit components: each folder holds its Python, one script and one style sheet."""
