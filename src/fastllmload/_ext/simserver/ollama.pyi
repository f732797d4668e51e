from fastllmload._ext.simserver.form import Form

class OllamaForm(Form):
    def fill(self, chunk_bytes: int) -> None: ...
