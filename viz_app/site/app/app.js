// A placeholder: the pages are drawn by the modules of this folder.

document.body.textContent = document.title;
