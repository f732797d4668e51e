from fastllmload._ext.simbody.form import block as block
from fastllmload._ext.simbody.form import pieces as pieces
