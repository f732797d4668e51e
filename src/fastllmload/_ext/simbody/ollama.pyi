from fastllmload._ext.simbody.form import Form

class OllamaForm(Form):
    def fill(self, chunk_bytes: int) -> None: ...
